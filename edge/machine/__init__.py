"""The machine: the only room that knows the operating system, which is Linux.  What it needs, and what it does without:

affinity        which cores this process may use (linux.py; cores.py).  Missing: all that the system has; where no file
                distinguishes fast and slow cores, all count as fast, and the system chooses those of the threads.
/proc, /sys     facts about the process, the board and its memory (linux.py, board.py, memory.py).  Missing: facts
                are None.  Of unknown available memory no plan is refused, and weights stay in the file's map; the most
                resident bytes so far count as those of now.
page advice     pages of 2 MiB, pages that are released or asked for (linux.py, placement.py).  Refused: pages are those
                that the system gives, and go when it wants them.
unnamed files   for what leaves a window and for results that wait (Python's tempfile).  Missing: files whose names are
                removed as soon as they are open.
meters          joules that were used (energy.py).  Missing or not readable: joules are unknown, and the reason is said.
control groups  limits on memory and processor time (memory.py, cores.py).  Missing: there is none.

What a step asks of the system is in pyx/machine, where the same holds.
"""
