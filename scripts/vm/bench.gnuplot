# SPDX-License-Identifier: GPL-2.0
#
# gnuplot -e "name='build/bench'" bench.gnuplot: NAME.svg from NAME.dat: a row for each figure, its ratios to C rxe from left to
# right, and a row for the heading of each group.

stats name.'.dat' skip 1 using 0 nooutput
rows = STATS_records
set terminal svg noenhanced size 900, 120 + 18 * rows font 'sans-serif,11' background '#ffffff'
set output name.'.svg'

set title 'Ratio to C rdma_rxe (above 1: better)'
set logscale x
set xtics (0.1, 0.2, 0.5, 1, 1.4, 2, 3, 5, 10)
set yrange [rows - 0.5:-0.5]
set grid x y linecolor '#dddddd'
set key top right outside horizontal
set tics nomirror
set arrow from 1, graph 0 to 1, graph 1 nohead linewidth 2 linecolor '#666666'

# Only the drivers that were measured have a column; "rxe" is the line at 1.
columns = system("head -n 1 ".name.".dat")
plot for [i = 2:words(columns)] name.'.dat' skip 1 using \
	(word(columns, i) eq 'rxe' ? NaN : column(i)):0:ytic(1) title (word(columns, i) eq 'rxe' ? '' : word(columns, i)) \
	with points pointtype (5 + 2 * (i - 2)) pointsize 0.7
