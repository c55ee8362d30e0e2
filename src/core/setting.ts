/**
 * The form of a setting's declaration: the schema of its value, and all else that is known of the
 * setting. Flags, variables, help, the tables of the documentation, the JSON Schema of the
 * configuration file and the values of the Helm chart derive from it.
 */

import Type, { type TSchema } from 'typebox';
import { SOCKET_PATH_MAX_BYTES } from './constants.ts';

/** The tables of the documentation, in their order. */
export const SETTING_GROUPS = [
  ...(['Addresses', 'Gateways', 'Rate limit service', 'TLS'] as const),
  ...(['Health, metrics and dashboard', 'Data'] as const),
  ...(['Analytics', 'Events', 'Keys', 'Threads', 'Counters', 'Redis', 'Log'] as const),
] as const;

export interface Explanation {
  group: (typeof SETTING_GROUPS)[number];
  /** A phrase, for the help and the documentation. */
  description: string;
  /** Sentences that follow it in the documentation only. */
  details?: string;
  /** What it may be, if no default shows it. For editors of the configuration file. */
  examples?: readonly (string | number)[];
  /** How the default follows from the machine, where it does. */
  defaultRule?: string;
  /** A secret has no flag: every user of the machine could read it. */
  secret?: boolean;
  /** False for an address or a file of a container, which the Helm chart sets by itself. */
  isInChart?: false;
  /** Describes the invalid part of a value that matches the schema, if there is one. */
  describeInvalid?: (value: string) => string | undefined;
}

/** What a schema has as its property `setting`. */
interface Annotations extends Explanation {
  /** The accepted values, for messages. */
  accepts: string;
  /** Milliseconds, which may be a text with a unit. */
  isDuration?: boolean;
  /** All values, if they are few words. */
  choices?: readonly string[];
}

export interface SettingDeclaration extends Annotations {
  default: string | number | undefined;
  /** That of the schema. */
  type: string | undefined;
}

interface NumberRange {
  minimum: number;
  maximum: number;
  default?: number;
}

/** The keywords of a schema. */
function keywords(initial: string | number | undefined, setting: Annotations) {
  return { ...(initial !== undefined && { default: initial }), setting };
}

export function integer(options: NumberRange & Explanation) {
  const { minimum, maximum, default: initial, ...explanation } = options;
  const accepts = `an integer from ${minimum} to ${maximum}`;
  return Type.Integer({ minimum, maximum, ...keywords(initial, { accepts, ...explanation }) });
}

/** A duration in ms. A text with a unit is valid too: `requireValid` converts it. */
export function duration(options: NumberRange & Explanation) {
  const { minimum, maximum, default: initial, ...explanation } = options;
  const accepts = `an integer from ${minimum} to ${maximum}, or a duration such as 500ms or 5s`;
  const setting = { accepts, isDuration: true, ...explanation };
  return Type.Integer({ minimum, maximum, ...keywords(initial, setting) });
}

interface TextOptions extends Explanation {
  accepts: string;
  /** Without one, every text except for the empty one is valid. */
  pattern?: string;
  default?: string;
}

export function text({ pattern, default: initial, ...setting }: TextOptions) {
  const rule = pattern === undefined ? { minLength: 1 } : { pattern };
  return Type.String({ ...rule, ...keywords(initial, setting) });
}

/** The path of a file, which a container must have beside its name. */
export function path(explanation: Explanation) {
  return Type.Optional(text({ accepts: 'a path', isInChart: false, ...explanation }));
}

/** The path of a Unix socket that weir makes. */
export function socketPath(explanation: Explanation) {
  return Type.Optional(
    text({
      pattern: '^[^\\0]+$',
      accepts: `a path of at most ${SOCKET_PATH_MAX_BYTES} bytes`,
      isInChart: false,
      ...explanation,
    }),
  );
}

/** The file mode of a Unix socket. */
export function socketMode(explanation: Explanation) {
  return text({
    pattern: '^0?[0-7]{3}$',
    default: '0660',
    accepts: 'three octal digits, as in 0660',
    isInChart: false,
    ...explanation,
  });
}

interface ChoiceOptions<T extends string> extends Explanation {
  choices: readonly T[];
  default: NoInfer<T>;
}

export function choice<const T extends string>(options: ChoiceOptions<T>) {
  const { choices, default: initial, ...explanation } = options;
  const accepts = choices.length === 2 ? choices.join(' or ') : `one of ${choices.join(', ')}`;
  return Type.Enum([...choices], keywords(initial, { accepts, choices, ...explanation }));
}

/** Off unless it is set. */
export function flag(explanation: Explanation) {
  return choice({ choices: ['false', 'true'], default: 'false', ...explanation });
}

export function declarationOf(schema: TSchema): SettingDeclaration {
  const {
    setting,
    default: initial,
    type,
  } = schema as TSchema & {
    setting: Annotations;
    default?: string | number;
    type?: string;
  };
  return { ...setting, default: initial, type };
}
