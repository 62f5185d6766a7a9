"""Which part of Python's library some lines come from: a classifier in Keras and in torch."""
