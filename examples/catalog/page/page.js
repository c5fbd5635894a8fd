'use strict';
const SIDES = {
  unprotected: { name: 'No cache', means: 'Every visitor asks the database.' },
  moka: { name: 'A cache in each instance', means: 'Each instance asks once (moka).' },
  protected: { name: 'bellwether', means: 'All instances together ask once.' },
};
const WAYS = Object.keys(SIDES);
const TICK = 500, SHOWN = 120, RECENT = 20, WIDTH = 600, HEIGHT = 160, STEP = WIDTH / (SHOWN - 1);
const OUTCOMES = {
  hit: 'From the cache.',
  stale: 'From the cache and a little old, while one instance asks again or because the database fails.',
  collapsed: 'Waited for a query that another visitor had begun.',
  led: 'Asked the database, for itself and for all that waited.',
  bypass: 'Asked the database because Redis did not answer.',
  failed: 'An error.',
};
/* The upper ends of all classes of a histogram but the last one, in ms. */
const ENDS = Array.from({ length: 16 }, (_, index) => 0.25 * 2 ** index);
const still = matchMedia('(prefers-reduced-motion: reduce)');
const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat('en');
const samples = [];
let scale = 10;

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
const sum = list => list.reduce((all, one) => all + one, 0);
const rate = value => value >= 10 || value === 0 ? number.format(Math.round(value)) : value.toFixed(1);
const plural = (count, one) => `${number.format(count)} ${count === 1 ? one : one === 'query' ? 'queries' : one + 's'}`;
const millis = value => value >= 1000 ? `${(value / 1000).toFixed(1)} s` : value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
const money = cents => (cents / 100).toFixed(2);
/* The sum of a figure of one side in all processes. */
const total = (sample, side, figure) => sum(sample.processes.map(process => process[side][figure]));
const outcome = (sample, name) => sum(sample.processes.map(process => process.outcomes[name]));

function quantile(histogram, share) {
  const all = sum(histogram);
  if (!all) return '–';
  let seen = 0;
  const index = histogram.findIndex(count => (seen += count) >= all * share);
  const brief = end => millis(end).replace('.0 ', ' ');
  return index === ENDS.length ? `> ${brief(ENDS[index - 1])}` : `< ${brief(ENDS[index])}`;
}

/* Queries a second at each sample. */
function rates(side) {
  return samples.slice(1).map((sample, index) =>
    (total(sample, side, 'queries') - total(samples[index], side, 'queries')) * 1000 / (sample.at - samples[index].at));
}

function drawCharts() {
  const each = WAYS.map(rates);
  const most = Math.max(1, ...each.flat());
  scale = [10, 20, 40, 60, 100, 160, 240, 400, 600, 1000, 1600, 2400, 4000].find(top => top >= most) || most;
  WAYS.forEach((side, index) => drawChart(document.querySelector(`.side[data-side="${side}"] .chart`), each[index]));
}

/* The newest point comes in from beyond the right edge. */
function drawChart(chart, values) {
  const shift = still.matches ? 0 : STEP;
  const points = values.map((value, index) => {
    const x = WIDTH - (values.length - 1 - index) * STEP + shift;
    return `${x.toFixed(1)},${(HEIGHT - 2 - value / scale * (HEIGHT - 4)).toFixed(1)}`;
  });
  if (!points.length) return;
  const [first] = points[0].split(','), [last] = points[points.length - 1].split(',');
  chart.querySelector('.line').setAttribute('d', `M${points.join('L')}`);
  chart.querySelector('.area').setAttribute('d', `M${first},${HEIGHT}L${points.join('L')}L${last},${HEIGHT}Z`);
  chart.querySelector('.top').textContent = number.format(scale);
  chart.querySelector('.mid').textContent = number.format(scale / 2);
  if (shift) {
    const slide = [{ transform: 'translateX(0)' }, { transform: `translateX(-${STEP}px)` }];
    const group = chart.querySelector('g');
    group.getAnimations().forEach(animation => animation.cancel());
    group.animate(slide, { duration: TICK, fill: 'forwards' });
  }
}

function showFigures(now, then) {
  const seconds = Math.max(0.5, (now.at - then.at) / 1000);
  const last = samples[Math.max(0, samples.length - 3)];
  const aSecond = queries => queries * 1000 / Math.max(TICK, now.at - last.at);
  for (const side of WAYS) {
    const more = figure => total(now, side, figure) - total(then, side, figure);
    const latency = ENDS.concat(0).map((_, index) =>
      sum(now.processes.map((process, place) => process[side].latency[index] - then.processes[place][side].latency[index])));
    text(`${side}-rate`, rate(aSecond(total(now, side, 'queries') - total(last, side, 'queries'))));
    text(`${side}-each`, now.processes.map((process, place) =>
      rate(aSecond(process[side].queries - last.processes[place][side].queries))).join(' + '));
    text(`${side}-answers`, rate(more('answers') / seconds));
    text(`${side}-slowest`, quantile(latency, 0.99));
    text(`${side}-queued`, number.format(total(now, side, 'queued')));
    text(`${side}-errors`, number.format(more('errors')));
    $(`${side}-errors`).classList.toggle('alarm', more('errors') > 0);
    text(`${side}-queries`, number.format(total(now, side, 'queries')));
  }
}

function showOutcomes(now, then) {
  const seconds = Math.max(0.5, (now.at - then.at) / 1000);
  const recent = Object.keys(OUTCOMES).map(name => outcome(now, name) - outcome(then, name));
  const all = sum(recent) || 1;
  Object.keys(OUTCOMES).forEach((name, index) => {
    $(`mix-${name}`).style.width = `${recent[index] / all * 100}%`;
    text(`${name}-rate`, rate(recent[index] / seconds));
    text(`${name}-total`, number.format(outcome(now, name)));
  });
}

function showState({ store, slow, broken, stopped, processes, urls }) {
  const says = (id, words, mood) => { text(id, words); $(id).dataset.mood = mood; };
  says('processes-state', processes.length === 1 ? '1 instance' : `${processes.length} instances`, 'good');
  says('database-state', `database: ${broken ? 'broken' : slow ? 'slow' : 'up'}`, broken ? 'bad' : slow ? 'fair' : 'good');
  says('store-state', `store: ${store}${stopped ? ', stopped' : ''}`, stopped ? 'bad' : 'good');
  for (const [id, isOn] of [['slow', slow], ['broken', broken], ['stopped', stopped === true]]) {
    $(id).setAttribute('aria-pressed', String(isOn));
  }
  $('stopped').disabled = stopped === null;
  $('alone').hidden = processes.length > 1;
  const at = place => urls[place % urls.length];
  text('curl', `curl -i ${at(0)}/api/product/42\ncurl -i '${at(1)}/api/product/42?way=moka'
curl -H 'content-type: application/json' -d '{"price_cents": 999}' ${at(2)}/api/product/42\ncurl ${at(0)}/metrics`);
}

function show(figures) {
  figures.at = performance.now();
  const latest = samples[samples.length - 1];
  /* Another program now: its counts began at zero. */
  if (latest && total(latest, 'unprotected', 'queries') > total(figures, 'unprotected', 'queries')) samples.length = 0;
  samples.push(figures);
  if (samples.length > SHOWN + 2) samples.shift();
  const then = samples[Math.max(0, samples.length - 1 - RECENT)];
  drawCharts();
  showFigures(figures, then);
  showOutcomes(figures, then);
  showState(figures);
}

/* One line of a result for each side: its name, a figure, how much of the most that is, and words. */
function lines(id, verdict, line, words) {
  const most = Math.max(1, ...WAYS.map(side => line(side).value));
  const runs = WAYS.map(side => {
    const { value, figure, note } = line(side);
    return `<div class="run" data-side="${side}"><div class="name"><span><span class="dot"></span>${SIDES[side].name}</span>
      <b id="${id}-${side}" data-value="${value}">${figure}</b></div>
      <div class="track"><i style="width:${Math.max(0.3, value / most * 100)}%"></i></div><p class="quiet">${note}</p></div>`;
  });
  $('result').innerHTML = `<p class="verdict">${verdict}</p>${runs.join('')}<p class="quiet">${words}</p>`;
}

function showBurst(bursts) {
  const line = side => {
    const queries = bursts[side].map(process => process.queries);
    const times = bursts[side].flatMap(process => process.millis).sort((one, other) => one - other);
    const errors = sum(bursts[side].map(process => process.errors));
    const each = queries.length > 1 ? ` (${queries.join(' + ')})` : '';
    return {
      value: sum(queries),
      figure: plural(sum(queries), 'query') + each,
      note: `Half of the visitors waited ${millis(times[times.length / 2 | 0])}, the last one ${millis(times[times.length - 1])}; ${errors ? plural(errors, 'error') : 'no errors'}.`,
    };
  };
  lines('burst', `1,000 visitors wanted product ${number.format(bursts.sku)}, which was in no cache.`, line,
    'A query takes 20 ms, and each instance has eight connections to the database.');
}

function showRace(race) {
  const line = side => {
    const { answers, processes, last_seconds } = race[side];
    const sellers = plural(processes.length, 'instance');
    return answers
      ? { value: last_seconds, figure: `${last_seconds.toFixed(1)} s`, note: `${sellers} sold at ${money(race.old_cents)} until the answer expired.` }
      : { value: 0, figure: '0 s', note: `Every answer after the change was ${money(race.new_cents)}.` };
  };
  lines('race', `The price rose from ${money(race.old_cents)} to ${money(race.new_cents)}. How long did visitors get the old one?`, line,
    'All caches were told to forget it, but reads were under way: what they brought came later, and was kept. Here answers expire after 5 s; where they live for an hour, it is an hour. bellwether refuses to keep such an answer.');
}

async function post(path) {
  const response = await fetch(path, { method: 'POST' });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function complain(fault) {
  const line = document.createElement('p');
  line.className = 'verdict';
  line.textContent = `That did not work: ${fault.message}`;
  $('result').replaceChildren(line);
}

async function press(button, busy, path, showAnswer) {
  const name = button.textContent;
  const buttons = [$('burst'), $('race')];
  buttons.forEach(one => { one.disabled = true; });
  button.textContent = busy;
  await post(path).then(showAnswer).catch(complain);
  buttons.forEach(one => { one.disabled = false; });
  button.textContent = name;
  button.focus({ preventScroll: true });
}

function build() {
  const figures = { answers: 'answers/s', slowest: 'slowest 1 %', queued: 'waiting', errors: 'errors in 10 s', queries: 'queries in all' };
  $('sides').innerHTML = WAYS.map(side => `<article class="card side" data-side="${side}">
    <h2><span class="dot"></span>${SIDES[side].name}</h2><p class="quiet">${SIDES[side].means}</p>
    <p class="big"><output id="${side}-rate">–</output> <span>queries a second</span></p>
    <p class="quiet">from each instance: <output id="${side}-each">–</output></p>
    <div class="chart"><svg viewBox="0 0 600 160" preserveAspectRatio="none" role="img" aria-label="Queries a second over the last minute: ${SIDES[side].name}"><g><path class="area"/><path class="line"/></g></svg><span class="top"></span><span class="mid"></span><span class="from">1 min ago</span><span class="now">now</span></div>
    <dl class="figures">${Object.entries(figures).map(([id, name]) => `<div><dt>${name}</dt><dd id="${side}-${id}">–</dd></div>`).join('')}</dl></article>`).join('');
  $('mix').innerHTML = Object.keys(OUTCOMES).map(name => `<i id="mix-${name}" style="background:var(--${name})"></i>`).join('');
  $('outcomes').innerHTML = Object.entries(OUTCOMES).map(([name, meaning]) =>
    `<tr><th scope="row" style="--side:var(--${name})"><span class="dot"></span>${meaning}</th><td id="${name}-rate">–</td><td id="${name}-total">–</td></tr>`).join('');
}

function connect() {
  const events = new EventSource('/events');
  const live = (words, mood) => { text('link-state', words); $('link-state').dataset.mood = mood; };
  events.onmessage = event => { live('live', 'good'); show(JSON.parse(event.data)); };
  events.onerror = () => live('not connected: these figures are old', 'bad');
}

build();
connect();
$('burst').onclick = () => press($('burst'), 'They are asking…', '/demo/burst', showBurst);
$('race').onclick = () => press($('race'), 'Asking each instance until all agree…', '/demo/race', showRace);
for (const id of ['slow', 'broken', 'stopped']) {
  $(id).onclick = () => post(`/demo/${id}?on=${$(id).getAttribute('aria-pressed') !== 'true'}`).catch(complain);
}
