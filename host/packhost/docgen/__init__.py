"""Reference pages of packs and file formats, generated from manifests and models so that none drifts."""
