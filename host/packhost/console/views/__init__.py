"""What the console's pages show, made from what the operations return: values in, values out."""
