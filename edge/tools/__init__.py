"""Tools that measure, convert and check; answers do not use them."""
