"""Questions and conditions as text: the grammar, kinds of arguments, and the values they are read into."""

__all__: list[str] = []
