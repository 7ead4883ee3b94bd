"""Plain tables for a terminal: numbers to the right, words to the left, no colour."""


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def percent(value: float) -> str:
    return f"{value * 100:.0f}%"


def render(columns: list[str], rows: list[list[str]], right: set[str] = frozenset()) -> str:
    """`right` names the columns of numbers. A row that ends early leaves its last cell to run on."""
    whole = [row for row in rows if len(row) == len(columns)]
    widths = [max(len(row[at]) for row in [columns, *whole]) for at in range(len(columns))]
    for row in rows:
        for at, cell in enumerate(row[:-1] if len(row) < len(columns) else row):
            widths[at] = max(widths[at], len(cell))

    def line(cells: list[str]) -> str:
        padded = [
            cell.rjust(width) if column in right and len(cells) == len(columns) else cell.ljust(width)
            for cell, width, column in zip(cells, widths, columns)
        ]
        return "  ".join(padded).rstrip()

    rule = ["-" * width for width in widths]
    return "\n".join(line(cells) for cells in [columns, rule, *rows])
