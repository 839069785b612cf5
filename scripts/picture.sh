#!/usr/bin/env bash
# The README's picture: the network and the plan of a finished run, out of its report.
#   scripts/picture.sh out/demo docs/demo.svg
set -euo pipefail
report=${1:?usage: scripts/picture.sh RUN_FOLDER PICTURE.svg}/report.html
picture=${2:?usage: scripts/picture.sh RUN_FOLDER PICTURE.svg}
[[ -r $report ]] || { echo "$report: no such report" >&2; exit 2; }

figure() { # TITLE Y HEIGHT: the figure with this title, placed there
  awk -v title="aria-label=\"$1." -v place="<svg y=\"$2\" width=\"1180\" height=\"$3\"" '
    index($0, "<svg") { inside = index($0, title); if (inside) sub(/.*<svg/, place) }
    inside { print }
    inside && index($0, "</svg>") { exit }' "$report"
}

network=$(figure Network 40 410) plan=$(figure Plan 500 430)
[[ -n $network && -n $plan ]] || { echo "$report: no figures of network and plan" >&2; exit 1; }
cat >"$picture.part" <<END
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1180 930">
<style>.heading { font: bold 18px sans-serif; fill: #1b2733 }</style>
<rect width="1180" height="930" fill="#ffffff"/>
<text x="20" y="28" class="heading">The network: as set (grey), and as Weir measures it (dark)</text>
$network
<text x="20" y="484" class="heading">What Weir chooses: the ratio kept, and the collective</text>
$plan
</svg>
END
mv "$picture.part" "$picture"
