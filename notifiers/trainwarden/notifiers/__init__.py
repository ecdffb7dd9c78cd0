"""Turns a decision into one useful message, and delivers it."""
