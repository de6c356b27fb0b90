"""From a network that a frontend read to a confirmed plan: no framework is known here."""
