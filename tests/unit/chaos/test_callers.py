"""A call that hangs ends no campaign, but is found."""

import threading

from chaos.callers import hanging


def test_callers_that_go_on_after_the_end_are_found() -> None:
    released = threading.Event()
    hangs = threading.Thread(target=released.wait, daemon=True)
    ends = threading.Thread(target=lambda: None)
    for thread in (hangs, ends):
        thread.start()
    ends.join()
    assert hanging([hangs, ends], 0.0) == [hangs]
    released.set()
