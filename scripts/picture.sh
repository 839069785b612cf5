#!/usr/bin/env bash
# The README's picture: the network and the plan of a finished run, drawn from its steps.csv.
#   scripts/picture.sh out/c1 docs/demo.svg
set -euo pipefail
steps=${1:?usage: scripts/picture.sh RUN_FOLDER PICTURE.svg}/steps.csv
picture=${2:?usage: scripts/picture.sh RUN_FOLDER PICTURE.svg}
[[ -r $steps ]] || { echo "$steps: no such file" >&2; exit 2; }

awk -F, '
  NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  $at["trial"] > 0 { next }
  {
    step[++n] = $at["step"]
    value["set_latency_ms", n] = $at["set_latency_ms"]; value["latency_ms", n] = $at["latency_ms"]
    value["set_bandwidth_gbps", n] = $at["set_bandwidth_gbps"]; value["bandwidth_gbps", n] = $at["bandwidth_gbps"]
    value["sent", n] = $at["wire_bytes"] / 1e6
    collective[n] = $at["collective"]
    if (!($at["collective"] in row)) { name[++rows] = $at["collective"]; row[name[rows]] = rows }
  }
  function x(s) { return 110 + 1050 * (s - step[1]) / (step[n] + 1 - step[1]) }
  function y(v) { return top + high - high * log(v / least) / log(most / least) }
  function text(tx, ty, anchor, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", tx, ty, anchor, what
  }
  function begin(heading, one, other,   i, v, e, many, times) { # a panel on a logarithmic axis, around two columns
    printf "<text x=\"20\" y=\"%d\" class=\"heading\">%s</text>\n", top - 14, heading
    least = 1e99; most = 0
    for (i = 1; i <= n; i++) {
      v = value[one, i]; if (v > 0 && v < least) least = v; if (v > most) most = v
      v = value[other, i]; if (v > 0 && v < least) least = v; if (v > most) most = v
    }
    least /= 1.5; most *= 1.5
    # Within a decade and a half powers of ten alone would be one label.
    many = split(most / least < 32 ? "1 2 5" : "1", times, " ")
    for (e = -5; e <= 5; e++) for (i = 1; i <= many; i++) if ((v = times[i] * 10 ^ e) >= least && v <= most) {
      printf "<path d=\"M110 %.1fH1160\" stroke=\"#e1e6eb\"/>\n", y(v)
      text(104, y(v) + 4, "end", sprintf("%g", v))
    }
  }
  function line(column, colour, width,   i, path, at, was) { # as steps, each level once; what was not measured is left out
    for (i = 1; i <= n; i++) if (value[column, i] > 0) {
      at = sprintf("%.1f", y(value[column, i]))
      if (at != was) path = path sprintf("%s%.1f %s", was == "" ? "M" : "H" x(step[i]) "L", x(step[i]), at)
      was = at
    }
    printf "<path d=\"%sH%.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"/>\n", path, x(step[n] + 1), colour, width
  }
  END {
    if (!n) exit 1
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1180 " 590 + 30 * rows "\" font-family=\"sans-serif\""
    print " font-size=\"13\" fill=\"#46525f\" shape-rendering=\"crispEdges\"><style>.heading { font: bold 16px sans-serif; fill: #1b2733 }</style>"
    print "<rect width=\"1180\" height=\"" 590 + 30 * rows "\" fill=\"#ffffff\"/>"
    high = 120
    top = 40; begin("One-way latency, ms: as set (grey), and as Weir measures it (dark)", "set_latency_ms", "latency_ms")
    line("set_latency_ms", "#94a5b8", 6); line("latency_ms", "#1f3a5f", 1.8)
    top = 210; begin("Bandwidth, Gbit/s", "set_bandwidth_gbps", "bandwidth_gbps")
    line("set_bandwidth_gbps", "#94a5b8", 6); line("bandwidth_gbps", "#1f3a5f", 1.8)
    top = 380; begin("What Weir chooses: MB that a rank sends in a step", "sent", "sent")
    line("sent", "#b3124f", 3)
    print "<text x=\"20\" y=\"540\" class=\"heading\">and the collective, by step</text>"
    for (i = 1; i <= rows; i++) text(104, 540 + 30 * i, "end", name[i])
    for (i = first = 1; i <= n; i++) if (i == n || collective[i + 1] != collective[i]) {
      printf "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"18\" fill=\"#27568b\"/>\n", x(step[first]), 527 + 30 * row[collective[i]], x(step[i] + 1) - x(step[first])
      first = i + 1
    }
    print "</svg>"
  }' "$steps" >"$picture.part" || { rm -f "$picture.part"; echo "$steps: no steps" >&2; exit 1; }
mv "$picture.part" "$picture"
