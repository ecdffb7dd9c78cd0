"""`trainwarden policy backtest`: recorded runs replayed by several processes, and shown as table, page or JSON."""
