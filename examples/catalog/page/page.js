'use strict';
const SIDES = ['unprotected', 'plain', 'protected'];
const TICK = 500, SHOWN = 120, RECENT = 20, WIDTH = 600, HEIGHT = 160, STEP = WIDTH / (SHOWN - 1);
const OUTCOMES = {
  hit: 'Cached and fresh: served at once.',
  stale: 'A little old: served while it is loaded again, or because it cannot be.',
  collapsed: 'Waited for a query that another caller had begun.',
  led: 'Made the query, for itself and for all waiters.',
  bypass: 'The store did not answer: queried without it.',
  failed: 'Got an error.',
};
/* The upper ends of all classes of a histogram but the last one, in ms: of ours, and of bellwether. */
const ENDS = Array.from({ length: 16 }, (_, index) => 0.25 * 2 ** index);
const TIMES = [.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000];
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
const minus = (later, earlier) => later.map((count, index) => count - earlier[index]);

function quantile(histogram, share, ends = ENDS) {
  const all = sum(histogram);
  if (!all) return '–';
  let seen = 0;
  const index = histogram.findIndex(count => (seen += count) >= all * share);
  const brief = end => millis(end).replace('.0 ', ' ');
  return index === ends.length ? `> ${brief(ends[index - 1])}` : `< ${brief(ends[index])}`;
}

/* Queries a second at each sample. */
function rates(side) {
  return samples.slice(1).map((sample, index) =>
    (sample[side].queries - samples[index][side].queries) * 1000 / (sample.at - samples[index].at));
}

function niceTop(value) {
  return [10, 20, 40, 60, 100, 160, 240, 400, 600, 1000, 1600, 2400, 4000].find(top => top >= value) || value;
}

function drawCharts() {
  const each = SIDES.map(rates);
  scale = niceTop(Math.max(1, ...each.flat()));
  SIDES.forEach((side, index) => drawChart(document.querySelector(`.side[data-side="${side}"] .chart`), each[index]));
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
  for (const side of SIDES) {
    const [one, before] = [now[side], then[side]];
    const latency = minus(one.latency, before.latency);
    const last = samples[Math.max(0, samples.length - 3)];
    text(`${side}-rate`, rate((one.queries - last[side].queries) * 1000 / Math.max(TICK, now.at - last.at)));
    text(`${side}-answers`, rate((one.answers - before.answers) / seconds));
    text(`${side}-median`, quantile(latency, 0.5));
    text(`${side}-slowest`, quantile(latency, 0.99));
    text(`${side}-queued`, number.format(one.queued));
    text(`${side}-errors`, number.format(one.errors - before.errors));
    $(`${side}-errors`).classList.toggle('alarm', one.errors > before.errors);
    text(`${side}-queries`, number.format(one.queries));
  }
  const without = now.unprotected.queries;
  text('spared', without ? `${(Math.max(0, 1 - now.protected.queries / without) * 100).toFixed(1)} %` : '–');
  const { loads, wakes } = now;
  text('loads', `${number.format(loads.started)} (${number.format(loads.failed)})`);
  text('refreshes', number.format(loads.failed_refreshes));
  text('wakes', `${number.format(wakes.push)} (${number.format(wakes.pause)}, ${number.format(wakes.missed_push)})`);
}

function showOutcomes(now, then) {
  const seconds = Math.max(0.5, (now.at - then.at) / 1000);
  const recent = Object.keys(OUTCOMES).map(name => now.outcomes[name] - then.outcomes[name]);
  const all = sum(recent) || 1;
  Object.keys(OUTCOMES).forEach((name, index) => {
    $(`mix-${name}`).style.width = `${recent[index] / all * 100}%`;
    text(`${name}-rate`, rate(recent[index] / seconds));
    text(`${name}-total`, number.format(now.outcomes[name]));
  });
}

function showBars(id, histograms) {
  const shares = histograms.map(histogram => histogram.map(count => count / (sum(histogram) || 1)));
  const top = Math.max(0.01, ...shares.flat());
  [...$(id).children].forEach((column, index) => shares.forEach((share, place) => {
    const height = share[index] / top * 100;
    column.children[place].style.height = height ? `max(2px, ${height}%)` : '0';
  }));
}

function showTimes(id, counts, things, none) {
  showBars(id, [counts]);
  const all = sum(counts);
  text(`${id}-note`, all
    ? `Since the start: ${number.format(all)} ${things}; half of them ${quantile(counts, 0.5, TIMES)}, 99 % ${quantile(counts, 0.99, TIMES)}.`
    : none);
}

function showState(now) {
  const { store, slow, broken } = now;
  const says = (id, words, mood) => { text(id, words); $(id).dataset.mood = mood; };
  says('database-state', `database: ${broken ? 'broken' : slow ? 'slow' : 'up'}`, broken ? 'bad' : slow ? 'fair' : 'good');
  const state = store.stopped ? 'stopped' : store.state;
  says('store-state', `store: ${store.kind}, ${state}`, state === 'up' ? 'good' : 'bad');
  text('store', `${store.kind}, ${state}`);
  for (const [id, isOn] of [['slow', slow], ['broken', broken], ['stopped', store.stopped]]) {
    $(id).setAttribute('aria-pressed', String(isOn));
  }
}

function show(figures) {
  figures.at = performance.now();
  const latest = samples[samples.length - 1];
  /* Another program now: its counts began at zero. */
  if (latest && latest.unprotected.queries > figures.unprotected.queries) samples.length = 0;
  samples.push(figures);
  if (samples.length > SHOWN + 2) samples.shift();
  const then = samples[Math.max(0, samples.length - 1 - RECENT)];
  drawCharts();
  showFigures(figures, then);
  showOutcomes(figures, then);
  showBars('latency', SIDES.map(side => minus(figures[side].latency, then[side].latency)));
  showTimes('waits', figures.waits, 'callers', 'None yet. A burst makes them.');
  showTimes('lags', figures.lags, 'loads', 'None yet. Start a second one with the same --store redis://…');
  showState(figures);
}

function run(side, name, burst, most) {
  const width = Math.max(0.3, burst.queries / Math.max(1, most) * 100);
  const errors = burst.errors ? `, ${plural(burst.errors, 'error')}` : ', no errors';
  return `<div class="run" data-side="${side}"><div class="name"><span><span class="dot"></span>${name}</span>
    <b id="burst-${side}-queries" data-queries="${burst.queries}" data-errors="${burst.errors}">${plural(burst.queries, 'query')}</b></div>
    <div class="track"><i style="width:${width}%"></i></div>
    <p class="quiet">Half of the callers were answered within ${millis(burst.median_ms)}, all within ${millis(burst.all_ms)}${errors}.</p></div>`;
}

function showBurst(bursts) {
  const { callers, product } = bursts;
  const names = { unprotected: 'Unprotected', plain: 'Plain cache', protected: 'Protected' };
  const most = Math.max(...SIDES.map(side => bursts[side].queries));
  $('result').innerHTML = `<p class="verdict">${number.format(callers)} callers, product ${number.format(product)}, in no cache:</p>
    ${SIDES.map(side => run(side, names[side], bursts[side], most)).join('')}`;
}

function showInvalidation({ product, queries, millis: times, failed }) {
  $('result').innerHTML = `<p class="verdict">Product ${number.format(product)} was removed from the cache.</p>
    <div class="run" data-side="protected"><p>The next request made <b id="invalidate-first">${plural(queries[0], 'query')}</b> and took ${millis(times[0])}.</p>
    <p>The one after that made <b id="invalidate-second">${plural(queries[1], 'query')}</b> and took ${millis(times[1])}.</p></div>
    <p class="quiet">${failed ? 'The query failed: what was removed is not served any more, not even as a last resort.'
    : 'A request that starts after an invalidation has returned is never given what it removed.'}</p>`;
}

async function post(path) {
  const response = await fetch(path, { method: 'POST' });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

async function press(button, busy, path, showAnswer) {
  const name = button.textContent;
  const others = [$('burst'), $('invalidate')];
  others.forEach(other => { other.disabled = true; });
  button.textContent = busy;
  try {
    showAnswer(await post(path));
  } catch (fault) {
    const line = document.createElement('p');
    line.className = 'verdict';
    line.textContent = `That did not work: ${fault.message}`;
    $('result').replaceChildren(line);
  }
  others.forEach(other => { other.disabled = false; });
  button.textContent = name;
  button.focus({ preventScroll: true });
}

function build() {
  $('mix').innerHTML = Object.keys(OUTCOMES).map(name => `<i id="mix-${name}" style="background:var(--${name})"></i>`).join('');
  $('outcomes').innerHTML = Object.entries(OUTCOMES).map(([name, meaning]) =>
    `<tr><th scope="row" style="--side:var(--${name})"><span class="dot"></span>${name}</th><td>${meaning}</td><td id="${name}-rate">–</td><td id="${name}-total">–</td></tr>`).join('');
  const shown = (index, ends) => index % 4 === 2 && index < ends.length - 1;
  const label = (index, ends) => index === ends.length ? 'more' : shown(index, ends) ? millis(ends[index]).replace('.0 ', ' ') : '';
  const columns = (bars, ends) => [...ends, 0].map((_, index) => `<div>${bars}<small>${label(index, ends)}</small></div>`).join('');
  $('latency').innerHTML = columns(SIDES.map(side => `<i data-side="${side}"></i>`).join(''), ENDS);
  for (const id of ['waits', 'lags']) $(id).innerHTML = columns('<i data-side="protected"></i>', TIMES);
  document.querySelectorAll('.here').forEach(place => { place.textContent = location.origin; });
}

function connect() {
  const events = new EventSource('/events');
  const live = (words, mood) => { text('link-state', words); $('link-state').dataset.mood = mood; };
  events.onmessage = event => { live('live', 'good'); show(JSON.parse(event.data)); };
  events.onerror = () => live('not connected: these figures are old', 'bad');
}

build();
connect();
$('burst').onclick = () => press($('burst'), 'A thousand callers are asking…', '/demo/burst', showBurst);
$('invalidate').onclick = () => press($('invalidate'), 'Asking…', '/demo/invalidate', showInvalidation);
for (const id of ['slow', 'broken', 'stopped']) {
  $(id).onclick = () => post(`/demo/${id}?on=${$(id).getAttribute('aria-pressed') !== 'true'}`).then(showState);
}
