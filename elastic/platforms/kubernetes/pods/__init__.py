"""What the JSON of a pod means for the replica in it, decided here and nowhere else. Pure.

`states` tells how any pod stands, the controllers' included, a replica's own container from others,
and why it ended and by whose doing; `observation` what is to be seen of one launch, and what became
of the workers of a job that is over; `masters` why no master runs where none does, how long one is
waited for, and the end of a job, where only its master's pod could keep it. `groups`, for whoever
ends pods, has Kueue forget theirs; it alone asks the API server.

Belongs here: whatever reads the `status` of a pod.
Does not belong here: requests, and what follows what was seen.
"""
