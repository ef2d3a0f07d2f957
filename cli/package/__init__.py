"""tapscope: traces, queue lengths and bottlenecks of a web system, rebuilt from a mirror port alone."""

__version__ = "0.1.0"
