#!/usr/bin/env bash
# Check the signatures of a tree in a GitHub workflow, and report only what the event brings.
#
# Reads the inputs from TREE, SINCE, CORE, CORE_SINCE, FAIL_ON, LEVEL, BASELINE, EXCLUDE, SARIF and MARKDOWN, the
# event from GITHUB_EVENT_NAME, BASE_SHA (target of a pull request), QUEUE_SHA (base of a merge group) and
# BEFORE_SHA (the branch before a push), and the program from VERISPEC.
set -euo pipefail

zeros=0000000000000000000000000000000000000000

say() { echo "::$1 title=verispec::$2"; }

# Print the revision that the event starts from, or nothing if there is none.
base_of_event() {
  case "$GITHUB_EVENT_NAME" in
    pull_request | pull_request_target)
      # The checkout is the merge of the pull request into its target, which is the first parent.
      if commit "HEAD^2"; then echo "HEAD^1"; else echo "${BASE_SHA:-}"; fi ;;
    merge_group) echo "${QUEUE_SHA:-HEAD^1}" ;;
    push)
      # A new branch has no state before the push.
      if [ -n "${BEFORE_SHA:-}" ] && [ "$BEFORE_SHA" != "$zeros" ]; then echo "$BEFORE_SHA"; else echo "HEAD^1"; fi ;;
    *) echo "HEAD^1" ;;
  esac
}

commit() { git -C "$TREE" rev-parse --quiet --verify "$1^{commit}" > /dev/null 2>&1; }

# Fetch what a shallow clone lacks; without credentials this works for public repositories.
fetch() {
  case "$1" in
    HEAD*) git -C "$TREE" fetch --quiet --no-tags --deepen=1 origin ;;
    *) git -C "$TREE" fetch --quiet --no-tags --depth=1 origin "$1" ;;
  esac
}

if [ "$SINCE" = auto ]; then
  SINCE=""
  if [ -d "$TREE" ] && git -C "$TREE" rev-parse --git-dir > /dev/null 2>&1; then
    SINCE=$(base_of_event)
    if [ -n "$SINCE" ] && ! commit "$SINCE" && ! { fetch "$SINCE" && commit "$SINCE"; }; then
      if [ "$SINCE" = "HEAD^1" ] && [ "$(git -C "$TREE" rev-parse --is-shallow-repository)" = false ]; then
        SINCE=""  # the first commit of all
      else
        say error "the revision $SINCE to compare with cannot be fetched: check out with fetch-depth: 0"
        exit 125
      fi
    fi
    case "$GITHUB_EVENT_NAME" in
      pull_request*)
        if [ -n "$SINCE" ] && [ "$(git -C "$TREE" rev-parse HEAD)" = "$(git -C "$TREE" rev-parse "$SINCE")" ]; then
          say error "the checkout is the target branch, not the pull request: give actions/checkout its ref"
          exit 2
        fi ;;
    esac
  fi
fi

words=("$TREE" --github --fail-on "$FAIL_ON" --level "$LEVEL" --sarif "$SARIF" --markdown "$MARKDOWN")
if [ -n "$SINCE" ]; then words+=(--since "$SINCE"); fi
if [ -n "$CORE" ]; then words+=(--core "$CORE"); fi
if [ -n "$CORE_SINCE" ]; then words+=(--core-since "$CORE_SINCE"); fi
if [ -n "$BASELINE" ]; then words+=(--baseline "$BASELINE"); fi
while IFS= read -r pattern; do
  if [ -n "$pattern" ]; then words+=(--exclude "$pattern"); fi
done <<< "$EXCLUDE"
code=0
"$VERISPEC" signatures "${words[@]}" || code=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$MARKDOWN" ]; then cat "$MARKDOWN" >> "$GITHUB_STEP_SUMMARY"; fi
exit "$code"
