"""Pods with parts of GPUs that come to a cluster: how much of its cards each policy gives out.

The published pods and nodes are read where they are, or others made of the same shape (`pods`);
`columns` place them, and `turnover` has them come and go.
"""
