"""The README's story: a real training goes flat, is saved, suspended, told of, and resumed."""
