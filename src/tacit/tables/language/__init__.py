"""Questions and conditions as text: the grammar, and what it is read into."""
