/** The text of --help, made from the schema of the settings. */

import { annotations, environmentName, flagName, SETTING_NAMES } from './schema.ts';

const HEAD = `weir: a rate limiting sidecar. May this identifier pass?

Usage: weir [serve] [flags]     or, in a clone, npm start -- [flags]
weir help lists the other commands.

A setting is taken from its flag, else from its environment variable, else from the JSON file
named by --config, else it has its default. The cores allowed are those that weir may run on, or
fewer where its control group, as that of a container, has a limit of CPU time.
`;

export function helpText(): string {
  const rows = SETTING_NAMES.map((name) => {
    const { takes, meaning, default: initial, secret } = annotations(name);
    const value = initial === undefined ? '' : ` [${initial}]`;
    const names = secret ? environmentName(name) : `${flagName(name)}, ${environmentName(name)}`;
    return `  ${names}\n      ${meaning}: ${takes}${value}\n`;
  });
  return `${HEAD}\n${rows.join('')}\n  --help, -h\n      this text\n`;
}
