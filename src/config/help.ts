/** The help of `weir serve`: every setting, from the schema of the settings. */

import { EXIT, exitSection } from '../core/exit.ts';
import { annotations, environmentName, flagName, SETTING_NAMES } from './schema.ts';

const INTRODUCTION = `Usage:
  weir [serve] [settings]
  npm start -- [settings]     in a clone

Serves checks. A setting comes from its flag, else from its environment variable, else from the JSON
file of --config. Defaults are in brackets. "Available cores" are the cores that weir may run on, or
fewer if its control group, for example a container, has a CPU limit.
`;

const EXAMPLES = `Examples:
  weir
  weir serve --port 8080 --data-dir /var/lib/weir
  WEIR_ROOT_KEY_FILE=/run/secrets/weir weir serve --config weir.json
`;

export function helpText(): string {
  const rows = SETTING_NAMES.map((name) => {
    const { accepts, description, default: initial, defaultRule, secret } = annotations(name);
    const rule = defaultRule === undefined ? '' : ` (default: ${defaultRule})`;
    const value = initial === undefined ? '' : ` [${initial}]`;
    const names = secret ? environmentName(name) : `${flagName(name)}, ${environmentName(name)}`;
    return `  ${names}\n      ${description}${rule}: ${accepts}${value}\n`;
  });
  const options = `Options:\n${rows.join('')}  -h, --help\n      print this help\n`;
  const codes = exitSection([EXIT.OK, EXIT.USAGE, EXIT.CANNOT_SERVE]);
  return [INTRODUCTION, options, EXAMPLES, codes].join('\n');
}
