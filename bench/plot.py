"""A plain line chart as SVG: error in per cent, on a logarithmic axis, against labelled places."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 60, 230, 36, 50
COLOURS = ["#c0392b", "#e67e22", "#2980b9", "#27ae60", "#8e44ad"]
TICKS = [1, 2, 5, 10, 20, 50, 100]


def text(x, y, words, anchor="middle", colour="#444"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
            f'{html.escape(words)}</text>')


def lines(places, series, x_title, y_title):
    """The SVG of series = {title: [error or None for each place]}."""
    values = [value for errors in series.values() for value in errors if value]
    low = max(tick for tick in TICKS if tick <= max(1, min(values)))
    high = min(tick for tick in TICKS if tick >= min(100, max(values)))

    def x(at):
        return LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, len(places) - 1)

    def y(value):
        part = math.log(value / low) / math.log(high / low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in TICKS:
        if low <= tick <= high:
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" '
                         f'y2="{y(tick):.1f}" stroke="#ddd"/>')
            parts.append(text(LEFT - 8, y(tick) + 4, f"{tick} %", "end"))
    parts += [text(x(at), HEIGHT - BOTTOM + 18, str(place)) for at, place in enumerate(places)]
    parts += [text(x((len(places) - 1) / 2), HEIGHT - 10, x_title), text(LEFT, TOP - 14, y_title)]
    for number, (title, errors) in enumerate(series.items()):
        colour, at_y = COLOURS[number % len(COLOURS)], TOP + 20 + 20 * number
        dots = [(x(at), y(error)) for at, error in enumerate(errors) if error]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in dots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in dots]
        parts.append(text(WIDTH - RIGHT + 20, at_y, title, "start", colour))
    return "\n".join(parts + ["</svg>"]) + "\n"
