/**
 * `weir print`: prints files for other programs that depend on weir's version only. It needs no
 * server. Without a name it lists the files.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { didYouMean } from '../core/nearest.ts';
import { type Command, subcommand } from './command.ts';
import { formatTable } from './output.ts';

/** Printable ASCII that needs no escape, neither in PromQL nor in YAML. */
const JOB = /^[\w.:/ -]+$/;

interface Printed {
  summary: string;
  /** Imports the texts only when they are printed. */
  print(job: string | undefined): Promise<string>;
  /** Whether the text has the job of the scrape configuration. */
  hasJob?: true;
}

const PRINTED: Readonly<Record<string, Printed>> = {
  'prometheus-rules': {
    summary: 'recording rules and alerts for Prometheus, as YAML',
    hasJob: true,
    print: async (job) => {
      return (await import('../observe/rules/prometheus-rules.ts')).prometheusRules(job);
    },
  },
  grafana: {
    summary: 'a dashboard with all metrics for Grafana 11 or later, as JSON',
    print: async () => (await import('../observe/grafana/dashboard.ts')).grafanaDashboard(),
  },
};
const NAMES = Object.keys(PRINTED);

const printFile = subcommand({
  usage: '[<name>] [options]',
  argumentNames: ['name'],
  argumentChoices: NAMES,
  isLastArgumentOptional: true,
  options: {
    job: {
      type: 'string',
      value: '<job>',
      help: 'for prometheus-rules: the job of the scrape configuration; default: weir',
    },
  },
  needsServer: false,
  hasJsonOption: false,
  run: async ({ values, positionals: [name] }) => {
    const { job } = values;
    if (job !== undefined && !JOB.test(job)) {
      throw new StartError(
        '--job must have only letters, digits, spaces and the characters "_", "-", ".", ":" and' +
          ` "/"; got ${formatValue(job)}`,
      );
    }
    process.stdout.write(await textOf(name, job));
    return undefined;
  },
});

export const print: Command = {
  subcommands: { '': printFile },
  notes: `
<name> is one of ${NAMES.join(', ')}. Without a name, weir lists them.
No server is needed. Print the files again after an upgrade of weir.
`,
  examples: [
    'weir print',
    'weir print prometheus-rules > weir-rules.yml',
    'weir print prometheus-rules --job ratelimit > weir-rules.yml',
    'weir print grafana > weir-dashboard.json',
  ],
  exitCodes: [EXIT.OK, EXIT.USAGE],
};

async function textOf(name: string | undefined, job: string | undefined): Promise<string> {
  if (name === undefined) {
    rejectJob(job, 'the list');
    const rows = Object.entries(PRINTED).map(([name, { summary }]) => [name, summary]);
    return formatTable(['NAME', 'CONTENT'], rows);
  }
  if (!Object.hasOwn(PRINTED, name)) throw unknownNameError(name);
  const { hasJob, print } = PRINTED[name];
  if (hasJob !== true) rejectJob(job, name);
  return print(job);
}

function rejectJob(job: string | undefined, what: string): void {
  if (job === undefined) return;
  throw new StartError(`--job is valid for prometheus-rules only; got ${what}`);
}

function unknownNameError(name: string): StartError {
  const accepted = `<name> must be one of ${NAMES.join(', ')}`;
  return new StartError(`${accepted}; got ${formatValue(name)}${didYouMean(name, NAMES)}`);
}
