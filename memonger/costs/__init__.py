"""How long ops take."""
