"""A playbook as a graph: its steps and arcs as Mermaid or Graphviz text, or drawn."""
