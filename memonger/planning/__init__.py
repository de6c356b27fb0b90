"""From a network that a frontend read to a confirmed plan, without knowing any framework."""
