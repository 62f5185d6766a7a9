"""The resources of the controller as users write them, and the definitions generated from them."""
