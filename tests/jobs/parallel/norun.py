"""An entry script without run()."""


def init():
    pass
