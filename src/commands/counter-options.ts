/** The options of `weir inspect` and `weir reset` that select counters, as fields of a request. */

import { ALGORITHM_NAMES } from '../core/algorithm-fields.ts';
import { ALGORITHM_OPTION, parseAlgorithm, parseDuration, requireIdentifier } from './options.ts';

export const COUNTER_OPTIONS = {
  namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
  duration: {
    type: 'string',
    value: '<duration>',
    help: 'only counters of checks with this duration; default: all counters',
  },
  algorithm: {
    ...ALGORITHM_OPTION,
    help: `only counters of this rule: ${ALGORITHM_NAMES}; default: all`,
  },
  'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
} as const;

interface CounterValues {
  namespace?: string | undefined;
  duration?: string | undefined;
  algorithm?: string | undefined;
  'empty-identifier'?: boolean | undefined;
}

/** @throws StartError for an invalid value */
export function counterFields([text]: readonly string[], values: CounterValues) {
  const { namespace, duration, algorithm, 'empty-identifier': isEmptyAllowed } = values;
  return {
    identifier: requireIdentifier(text, isEmptyAllowed),
    namespace,
    duration: duration === undefined ? undefined : parseDuration('duration', duration),
    algorithm: algorithm === undefined ? undefined : parseAlgorithm(algorithm),
  };
}
