# The HTML report in a real browser: every plot is drawn, nothing fails, nothing is requested, hostile names stay text.
. "$(dirname "$0")/lib.sh"
need jq cargo timeout
browser=
for program in chromium chromium-browser google-chrome; do
    if command -v "$program" >/dev/null; then browser=$program; break; fi
done
[[ -n $browser ]] || { echo "chromium is not installed"; exit 77; }

# As the tests of the workspace have built it: of the lab alone, all that it needs would be built once more.
cargo build --quiet --workspace --example report
example() { "${CARGO_TARGET_DIR:-target}/debug/examples/report" "$@"; }
# The program, where it has the command already.
report() {
    if "$BIMETAL" lab report --help >/dev/null 2>&1; then "$BIMETAL" lab report "$@"; else example "$@"; fi
}

# dom PAGE [OPTION...]: what the page is once its scripts have run, in $work/dom; the browser's own log in $work/log
dom() {
    local page=$1
    shift
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --no-first-run --host-resolver-rules="MAP * ~NOTFOUND" --enable-logging=stderr --window-size=1300,900 \
        --virtual-time-budget=8000 "$@" --dump-dom "file://$page#check" >"$work/dom" 2>"$work/log" ||
        { tail -5 "$work/log"; echo "the browser failed"; exit 1; }
    # The hint about reading canvases back is owed to #check, which does.
    if grep 'CONSOLE' "$work/log" | grep -v 'willReadFrequently'; then echo "$page: says that on the console"; exit 1; fi
    sed -n 's|.*<pre id="drawn" hidden="">\(.*\)</pre>.*|\1|p' "$work/dom" >"$work/drawn"
    [[ -s $work/drawn ]] || { echo "$page: the script did not finish"; exit 1; }
}

# drawn WHAT FILTER: it holds of what the page says it drew
drawn() { jq -e "$2" "$work/drawn" >/dev/null || { echo "not so: $1"; cat "$work/drawn"; exit 1; }; }

example --samples "$work"
echo '<html></html>' >"$work/blank.html"
HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --dump-dom \
    "file://$work/blank.html" >/dev/null 2>"$work/log" ||
    { tail -3 "$work/log"; echo "chromium does not run here"; exit 77; }

all='["bandwidth", "iops", "longest", "fast", "heat-0", "places-0", "percentiles", "loads", "depths"]'
every='(.errors == []) and (.plots | all(.inked and .labels >= 2)) and ([.plots[] | .cells // .points] | all(. > 0))'

report "$work/A.json" --html "$work/one.html"
dom "$work/one.html"
drawn "every plot of one run" ".plots | keys as \$k | $all - \$k == []"
drawn "ink and no errors" "$every"
drawn "three lines over time, of two points a part" '.plots | [.bandwidth, .iops, .longest, .percentiles] | all(.series == 3)'
drawn "two jobs by tier and depth" '.plots | [.fast, .depths] | all(.series == 2)'
drawn "heat maps of both jobs" '.plots | has("heat-1") and has("places-1") and ."places-1".cells > 10000'

report "$work/A.json" "$work/B.json" --html "$work/two.html"
dom "$work/two.html"
drawn "ink and no errors of two runs" "$every"
drawn "lines of both runs" '.plots | .iops.series == 6 and .loads.points == 6 and has("heat-3")'
grep -q 'Compared with A' "$work/dom"
report "$work/A.json" "$work/B.json" >"$work/table"
grep -q 'By A:' "$work/table"

# On a telephone and on a wide screen, with a finding that has no blank: it is seen whole, nothing makes the page wider than
# it is, and every map has a scale that ends with a number.
jq '.notes = ["x" * 2000, "short", "שלום עולם"]' "$work/A.json" >"$work/wordy.json"
report "$work/wordy.json" "$work/B.json" --html "$work/wordy.html"
# No window of the browser's is as narrow as a telephone, but a frame may be.
for width in 400 1400; do
    {
        echo "<iframe style=\"width: ${width}px; height: 900px; border: 0\" srcdoc=\""
        sed 's/location.hash === "#check"/true/' "$work/wordy.html" | jq -Rsr @html
        cat <<'END'
"></iframe><pre id="drawn" hidden></pre><script>
setTimeout(() => { document.getElementById("drawn").textContent =
    document.querySelector("iframe").contentDocument.getElementById("drawn").textContent; }, 5000);
</script>
END
    } >"$work/framed.html"
    dom "$work/framed.html"
    drawn "a page of $width fits" ".errors == [] and (.layout | .width <= $width and .width > $width - 20 and .over <= 0 and .said > 3 and .cut == 0)"
    drawn "scales at $width" '.layout | .maps == 8 and (.scales | length == 8 and all(.[0] == "1" and length > 1))'
done

report "$work/depths.json" --html "$work/depths.html"
dom "$work/depths.html"
drawn "a line of six depths" "$every and .plots.loads.points == 6"

# What is not in a record has no empty plot.
jq 'del(.jobs[].intervals[].tiers) | .jobs[].depths_ns = [] | .jobs |= .[:1]' "$work/depths.json" >"$work/less.json"
report "$work/less.json" --html "$work/less.html"
dom "$work/less.html"
drawn "no empty plots" "$every"' and (.plots | (has("fast") or has("depths") or has("loads")) | not)'
jq '.jobs[].intervals = []' "$work/A.json" >"$work/none.json"
report "$work/none.json" --html "$work/none.html"
dom "$work/none.html"
drawn "no time, no plots over time" '.errors == [] and (.plots | has("percentiles") and (has("iops") | not))'

# Every button, the theme's among them, and a drag over a plot.
sed 's|</body>|<script>setTimeout(() => {\
  const texts = [...document.querySelectorAll("button")].map(button => button.textContent);\
  for (const text of texts.concat("Dark", "Light"))\
    for (const button of document.querySelectorAll("button")) if (button.textContent === text) { button.click(); break; }\
  setTimeout(() => {\
    const over = document.querySelector("#plot-iops .u-over"), box = over.getBoundingClientRect();\
    const fire = (type, x, target) => target.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0,\
      clientX: box.left + box.width * x, clientY: box.top + 50, movementX: 9, movementY: 9 }));\
    fire("mousemove", 0.25, over); fire("mousedown", 0.25, over);\
    fire("mousemove", 0.5, document); fire("mousemove", 0.5, over); fire("mouseup", 0.5, document);\
  }, 500);\
}, 500)</script></body>|' "$work/two.html" >"$work/driven.html"
dom "$work/driven.html"
drawn "no errors of buttons" '.errors == []'
drawn "a drag from a quarter to a half of five minutes zooms to it" \
    '.zoom[0] > 70 and .zoom[0] < 80 and .zoom[1] > 145 and .zoom[1] < 155'

# Names that would be markup.
hostile='</title></script><script>window.bad=1;document.title="bad"</script><img src=x onerror="document.title=bad"><!--'
jq --arg h "$hostile" '.title = $h | .notes = [$h] | .jobs[].name = $h | .jobs[].options = {($h): $h}
    | .jobs[].errors = {($h): 1} | .environment.kernel = $h | .environment.targets = {($h): {kind: $h, size_bytes: 1,
    details: {($h): $h}}}' "$work/A.json" >"$work/hostile.json"
report "$work/hostile.json" --html "$work/hostile.html"
dom "$work/hostile.html"
drawn "ink and no errors of hostile names" "$every"
! grep -q -E '<title>bad|<img' "$work/dom" || { echo "a name became markup"; exit 1; }
[[ $(grep -o '<script' "$work/dom" | wc -l) == $(grep -o '<script' "$work/one.html" | wc -l) ]]

# On paper.
HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
    --virtual-time-budget=8000 --print-to-pdf="$work/two.pdf" "file://$work/two.html" 2>"$work/log"
[[ $(head -c 5 "$work/two.pdf") == %PDF- && $(stat -c %s "$work/two.pdf") -gt 50000 ]]
