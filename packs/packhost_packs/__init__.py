"""The packs that come with packhost; they use only its public API."""
