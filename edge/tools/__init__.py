"""Tools that measure, convert, calibrate and check; answers do not use them."""
