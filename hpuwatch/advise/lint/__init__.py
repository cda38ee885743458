"""What is wrong with a configuration, before a start is paid for.

``configuration`` holds what was given and seen, ``kinds`` the table of findings; each
other module looks for some of them.
"""
