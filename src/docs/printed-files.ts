/** The files of the repository that `weir print` prints. */

import { prometheusRules } from '../observe/rules/prometheus-rules.ts';
import type { Generated } from './generator.ts';

export const printedFiles: Generated['files'] = {
  'examples/prometheus-alert/weir-alerts.yml': () => prometheusRules(),
};
