"""Plans become symbols, and graphs offer variants."""
