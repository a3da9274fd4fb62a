# The page of a server in a real browser: it draws while load runs, is used by keyboard, fits a telephone, survives a server that is
# killed and comes back, says so meanwhile, and asks nobody else. Pictures are left in PAGE_PICTURES, if that is set; PAGE_FAST and
# PAGE_SLOW are the sizes of its devices.
. "$(dirname "$0")/lib.sh"
need jq python3
browser=
for program in chromium chromium-browser google-chrome; do
    if command -v "$program" >/dev/null; then browser=$program; break; fi
done
[[ -n $browser ]] || { echo "chromium is not installed"; exit 77; }

create "${PAGE_FAST:-64M}" "${PAGE_SLOW:-256M}" --landing 8M
BROWSER=$browser WORK=$work SOCKET=$socket python3 "$(dirname "$0")/page.py"
