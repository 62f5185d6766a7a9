"""In which order objects are made in an API server of `support.api_server_in_memory`."""


def order_of_making(api):
    """What is made from now on, as pairs of a plural and a name: a list that grows."""
    made = []
    create = api.objects.create

    def created(place, manifest, dry_run=False):
        if not dry_run:
            made.append((place.plural, manifest["metadata"]["name"]))
        return create(place, manifest, dry_run)

    api.objects.create = created
    return made
