/**
 * The scripts that complete command lines of `weir`, one for each shell. All work in the same way:
 * the first words of the line select a place, and the word before the cursor may be an option of
 * this place that has a value.
 */

interface Candidate {
  name: string;
  /** May be empty. */
  help: string;
}

/** The name has its dashes. */
export interface PlaceOption extends Candidate {
  /** Undefined for an option without a value; empty if the values are not known. */
  values: readonly string[] | 'paths' | undefined;
}

/** What may be typed after a command or a subcommand. */
export interface Place {
  /** `''`, a command, or a command and its subcommand. */
  name: string;
  words: readonly Candidate[] | 'paths';
  options: readonly PlaceOption[];
}

const namesOf = (items: readonly { name: string }[]) => items.map(({ name }) => name);
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const quoteForFish = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`;

/** The commands that have subcommands. */
function groupsOf(places: readonly Place[]): string[] {
  const names = places
    .filter(({ name }) => name.includes(' '))
    .map(({ name }) => name.split(' ')[0]);
  return [...new Set(names)];
}

/** The options of a place that have a value, grouped by their values. */
function byValues({ options }: Place) {
  const groups = new Map<string, { names: string[]; values: readonly string[] | 'paths' }>();
  for (const { name, values } of options) {
    if (values === undefined) continue;
    const group = groups.get(String(values)) ?? { names: [], values };
    groups.set(String(values), { ...group, names: [...group.names, name] });
  }
  return [...groups.values()];
}

/** Whether the word before the cursor is an option with a value, as bash and zsh test it. */
function valueCases(place: Place, reply: (values: string) => string): string[] {
  const cases = byValues(place).map(({ names, values }) => {
    const action =
      values === 'paths'
        ? '_weir_paths; return'
        : values.length === 0
          ? 'return'
          : reply(values.map(quote).join(' '));
    return `    ${names.join(' | ')}) ${action} ;;`;
  });
  return cases.length === 0 ? [] : ['  case $previous in', ...cases, '  esac'];
}

function indented(lines: readonly string[], spaces: number): string {
  return lines.map((line) => ' '.repeat(spaces) + line).join('\n');
}

export function bashScript(places: readonly Place[]): string {
  const cases = places.flatMap((place) => {
    const { name, words, options } = place;
    return [
      `${quote(name)})`,
      ...valueCases(place, (values) => `_weir_words ${values}; return`),
      words === 'paths' ? '  paths=1' : `  words=(${namesOf(words).map(quote).join(' ')})`,
      `  flags=(${namesOf(options).join(' ')}) ;;`,
    ];
  });
  return `# Completes command lines of weir in bash. Printed by "weir completion bash".
_weir_words() {
  local word
  for word; do
    if [[ $word == "$current"* ]]; then COMPREPLY+=("$(printf %q "$word")"); fi
  done
}
_weir_paths() {
  local path
  compopt -o filenames 2> /dev/null
  while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen -f -- "$current")
}
_weir() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]}
  local place= paths= i
  local -a words=() flags=()
  COMPREPLY=()
  # bash makes three words of --option=value.
  if [[ $current == '=' ]]; then
    current=
  elif [[ $previous == '=' ]]; then
    previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD > 1)); then
    place=\${COMP_WORDS[1]}
    case $place in
      -*) place=serve ;;
      ${groupsOf(places).join(' | ')})
        if ((COMP_CWORD > 2)); then place+=" \${COMP_WORDS[2]}"; fi ;;
    esac
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -- ]]; then _weir_paths; return; fi
  done
  case $place in
${indented(cases, 4)}
  esac
  if [[ $current == -* ]] || [[ -z $paths && \${#words[@]} == 0 ]]; then
    _weir_words "\${flags[@]}"
  elif [[ -n $paths ]]; then
    _weir_paths
  else
    _weir_words "\${words[@]}"
  fi
}
complete -F _weir weir
`;
}

export function zshScript(places: readonly Place[]): string {
  const described = (items: readonly Candidate[]) => {
    return items.map(({ name, help }) => quote(help === '' ? name : `${name}:${help}`)).join(' ');
  };
  const cases = places.flatMap((place) => {
    const { name, words, options } = place;
    return [
      `${quote(name)})`,
      ...valueCases(place, (values) => `compadd -- ${values}; return`),
      words === 'paths' ? '  paths=1' : `  found=(${described(words)})`,
      `  flags=(${described(options)}) ;;`,
    ];
  });
  return `#compdef weir
# Completes command lines of weir in zsh. Printed by "weir completion zsh".
_weir_paths() { _files }
_weir() {
  local place= paths= previous=$words[CURRENT-1]
  local -a found flags
  if [[ $PREFIX == --*=* ]]; then
    previous=\${PREFIX%%=*}
    compset -P '*='
  fi
  if ((CURRENT > 2)); then
    place=$words[2]
    case $place in
      -*) place=serve ;;
      ${groupsOf(places).join(' | ')})
        if ((CURRENT > 3)); then place+=" $words[3]"; fi ;;
    esac
  fi
  if ((\${words[(i)--]} < CURRENT)); then _weir_paths; return; fi
  case $place in
${indented(cases, 4)}
  esac
  if [[ $PREFIX == -* ]] || [[ -z $paths && $#found == 0 ]]; then
    _describe -o option flags
  elif [[ -n $paths ]]; then
    _weir_paths
  else
    _describe value found
  fi
}
# As a file in fpath, the script is the body of the function.
if [[ $funcstack[1] == _weir ]]; then _weir "$@"; else compdef _weir weir; fi
`;
}

export function fishScript(places: readonly Place[]): string {
  const printed = (items: readonly Candidate[]) => {
    const texts = items.flatMap(({ name, help }) => [name, help]).map(quoteForFish);
    return `printf '%s\\t%s\\n' ${texts.join(' ')}`;
  };
  const cases = places.flatMap((place) => {
    const { name, words, options } = place;
    const flags = options.length === 0 ? 'true' : printed(options);
    const others = words === 'paths' ? '__weir_paths' : words.length === 0 ? flags : printed(words);
    const values = byValues(place).map(({ names, values }) => {
      const action =
        values === 'paths'
          ? '__weir_paths; return'
          : values.length === 0
            ? 'return'
            : `printf "$prefix%s\\n" ${values.map(quoteForFish).join(' ')}; return`;
      return [`  case ${names.join(' ')}`, `    ${action}`];
    });
    return [
      `case ${quoteForFish(name)}`,
      ...(values.length === 0 ? [] : ['  switch $previous', ...values.flat(), '  end']),
      "  if string match -q -- '-*' $current",
      `    ${flags}`,
      '  else',
      `    ${others}`,
      '  end',
    ];
  });
  return `# Completes command lines of weir in fish. Printed by "weir completion fish".
function __weir_paths
  __fish_complete_path (commandline -ct | string replace -r '^--[^=]*=' '')
end
function __weir_complete
  set -l tokens (commandline -opc)
  set -l current (commandline -ct)
  set -l previous $tokens[-1]
  set -l prefix ''
  if string match -qr -- '^--[^=]+=' $current
    set previous (string replace -r -- '=.*' '' $current)
    set prefix $previous=
  end
  set -l place ''
  if test (count $tokens) -gt 1
    set place $tokens[2]
    switch $place
      case '-*'
        set place serve
      case ${groupsOf(places).join(' ')}
        if test (count $tokens) -gt 2
          set place "$place $tokens[3]"
        end
    end
  end
  if contains -- -- $tokens
    __weir_paths
    return
  end
  switch $place
${indented(cases, 4)}
  end
end
complete -c weir -f -a '(__weir_complete)'
`;
}
