/** The rules in the comment of a configuration that `weir gateway --rls` prints. */

const RULES = /^# {3}domain: .*\n(?:# {3}.*\n)*/m;

/** The text of the file, without the characters of the comment. */
export function rulesIn(printed: string): string {
  const [comment] = RULES.exec(printed)!;
  return comment.replaceAll(/^# {3}/gm, '');
}
