/** The help of `weir serve`: every setting, from the schema of the settings. */

import { EXIT, exitSection } from '../core/exit.ts';
import { annotations, environmentName, flagName, SETTING_NAMES } from './schema.ts';

const INTRODUCTION = `Usage:
  weir [serve] [settings]
  npm start -- [settings]     in a clone

Serves checks. A setting is taken from its flag, else from its environment variable, else from the
JSON file of --config, else it has its default, in brackets below. The cores allowed are those that
weir may run on, or fewer where its control group, as that of a container, has a limit of CPU time.
`;

const EXAMPLES = `Examples:
  weir
  weir serve --port 8080 --data-dir /var/lib/weir
  WEIR_ROOT_KEY_FILE=/run/secrets/weir weir serve --config weir.json
`;

export function helpText(): string {
  const rows = SETTING_NAMES.map((name) => {
    const { accepts, meaning, default: initial, secret } = annotations(name);
    const value = initial === undefined ? '' : ` [${initial}]`;
    const names = secret ? environmentName(name) : `${flagName(name)}, ${environmentName(name)}`;
    return `  ${names}\n      ${meaning}: ${accepts}${value}\n`;
  });
  const options = `Options:\n${rows.join('')}  -h, --help\n      print this help\n`;
  const codes = exitSection([EXIT.OK, EXIT.USAGE, EXIT.CANNOT_SERVE]);
  return [INTRODUCTION, options, EXAMPLES, codes].join('\n');
}
