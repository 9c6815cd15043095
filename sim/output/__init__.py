"""How results are shown: figures as text, tables, goals and charts."""
