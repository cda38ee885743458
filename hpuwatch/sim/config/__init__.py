"""The server's settings as the real one reads them: command line, environment, release."""
