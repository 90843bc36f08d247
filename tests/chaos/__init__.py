"""A campaign of faults against the real service, in which every answer must be right.

============== ====================================================================
__main__       `make chaos`: gives a campaign mounts of its own, runs it, shrinks what fails
faults         the kinds of faults, and what callers may notice of each
schedule       which fault comes when, from a seed
judge          whether what a caller saw is right, refused with a reason, or a defect
shrink         the shortest schedule that still fails
revisions      which revision of a model may answer when
samples        the requests of all doors, and how each is sent
callers        callers who repeat them, and collect what they saw
stage          routers, workers, the network between them, certificates and tokens
models         the models that it serves
processes      one role of the service, which is restarted however it ends
disk           the compile cache, on a disk that can be full, read-only or damaged
memory, clock  what a process gets too little of, or wrong
changes        models that come, go and change their revision
injection      what is done to the stage for each kind of fault
leftovers      processes, sockets and files that outlive the service
campaign       all of it together, and its result
report         the result for people, and for the docs
============== ====================================================================

`faults`, `schedule`, `judge`, `revisions` and `shrink` are pure.
"""
