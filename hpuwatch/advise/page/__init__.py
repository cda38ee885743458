"""The report as one HTML page that needs nothing else, and its pictures as SVG."""
