"""Facts: everything that touches the engine, the model file or the machine."""
